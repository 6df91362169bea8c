"""Chat templates: conversation -> prompt, with every control token accounted for."""

from clover_agent.templates.render import ChatTemplate
from clover_agent.templates.source import template_source

__all__ = ["ChatTemplate", "template_source"]
