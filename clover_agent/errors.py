"""Every error that this package raises on purpose, and the HTTP form of each.

    CloverError                     500 server_error
    ├── InvalidRequest              400 invalid_request_error        the client's request; `param` names the field
    │   ├── ContextLengthExceeded   400 context_length_exceeded
    │   ├── UnsupportedParameter    400 unsupported_parameter        would change the answer and cannot be honoured
    │   └── InvalidSchema           400 invalid_json_schema          a schema or grammar that cannot be used
    ├── AuthenticationFailed        401 invalid_api_key
    ├── Forbidden                   403 forbidden                    Host header or origin not allowed
    ├── NotFound                    404 not_found
    │   └── ModelNotFound           404 model_not_found
    ├── MethodNotAllowed            405 method_not_allowed
    ├── PayloadTooLarge             413 payload_too_large
    ├── UnsupportedMediaType        415 unsupported_media_type
    ├── Overloaded                  429 rate_limit_exceeded          the queue is full; `retry_after_s`
    ├── Unavailable                 503 service_unavailable          loading, draining, or the engine is dead
    ├── GenerationFailed            500 generation_failed            this request's generation
    │   ├── InvalidToolCall         500 invalid_tool_call            a call that does not satisfy its schema
    │   ├── InvalidOutput           500 invalid_output               text that does not satisfy response_format
    │   ├── NonFiniteLogits         500 non_finite_logits
    │   ├── GrammarError            500 grammar_error                a matcher in its error state
    │   └── DeadlineExceeded        504 deadline_exceeded
    └── LoadFailed                  500 load_failed                  a model, tokenizer or setting that cannot be used

`str(error)` is the public message: it says what was wrong and, where there is something to do, what to do.
"""

from typing import Any, ClassVar


class CloverError(Exception):
    """Base of the tree. `status`, `type` and `code` are its HTTP form; `param` names the field to blame, if any."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""
        return {"error": {"message": str(self), "type": self.type, "param": self.param, "code": self.code}}


class InvalidRequest(CloverError):
    status = 400
    type = "invalid_request_error"


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"


class UnsupportedParameter(InvalidRequest):
    code = "unsupported_parameter"


class InvalidSchema(InvalidRequest):
    code = "invalid_json_schema"


class AuthenticationFailed(CloverError):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(CloverError):
    status = 403
    type = "permission_error"
    code = "forbidden"


class NotFound(CloverError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class MethodNotAllowed(CloverError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class PayloadTooLarge(CloverError):
    status = 413
    type = "invalid_request_error"
    code = "payload_too_large"


class UnsupportedMediaType(CloverError):
    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class Overloaded(CloverError):
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(CloverError):
    status = 503
    type = "unavailable_error"
    code = "service_unavailable"


class GenerationFailed(CloverError):
    code = "generation_failed"


class InvalidToolCall(GenerationFailed):
    code = "invalid_tool_call"


class InvalidOutput(GenerationFailed):
    code = "invalid_output"


class NonFiniteLogits(GenerationFailed):
    code = "non_finite_logits"


class GrammarError(GenerationFailed):
    code = "grammar_error"


class DeadlineExceeded(GenerationFailed):
    status = 504
    code = "deadline_exceeded"


class LoadFailed(CloverError):
    code = "load_failed"
