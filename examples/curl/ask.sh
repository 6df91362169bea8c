#!/bin/sh
# Ask for the weather and see the events as they come: ./ask.sh [BASE_URL]
exec curl -sSN "${1:-http://127.0.0.1:8000/v1}/chat/completions" \
  -H 'Content-Type: application/json' -d "@$(dirname "$0")/weather.json"
