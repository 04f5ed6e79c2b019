package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Error is an error reply. The constructors in refusals.go make it; ErrCode identifies it.
type Error struct {
	// Code is the class, as in HTTP: 400, 404, 409, 413, 429, 500 or 503.
	Code int
	// ErrCode is the stable number of the error, one of the Code constants. Its
	// last three digits are Code.
	ErrCode int
	// Description is one line for people. It may change.
	Description string
	// RetryAfter is when a retry makes sense, 0 if unknown.
	RetryAfter time.Duration
	// RateLimit is the state of the limit that refused an enqueue, or nil.
	RateLimit *RateLimit
}

// RateLimit is the state of an enqueue limit.
type RateLimit struct {
	Limit     int64         // how many messages it admits at once
	Remaining int64         // how many it would admit now
	Reset     time.Duration // until it admits Limit again; whole seconds on the wire, rounded up
}

// newError makes an error. Its description is one line, because it is sent in a header.
func newError(errCode int, format string, args ...any) *Error {
	return &Error{
		Code:        errCode % 1000,
		ErrCode:     errCode,
		Description: HeaderValue(fmt.Sprintf(format, args...)),
	}
}

// retry sets when to retry and returns e.
func (e *Error) retry(after time.Duration) *Error {
	e.RetryAfter = max(after, 0)
	return e
}

// After returns e for a request that changed messages before it failed.
func (e *Error) After(messages int64) *Error {
	after := *e
	after.Description = HeaderValue(fmt.Sprintf("%s; %s had been done before", e.Description, Plural(messages, "message")))
	return &after
}

// Error returns the description and the codes.
func (e *Error) Error() string {
	return e.Description + " (" + strconv.Itoa(e.Code) + ", err_code " + strconv.Itoa(e.ErrCode) + ")"
}

// Is reports whether target is an error with the same ErrCode, for errors.Is.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error) //nolint:errorlint // Is must not unwrap its target
	return ok && t != nil && e != nil && t.ErrCode == e.ErrCode
}

// Headers returns the headers of the error reply. It rounds times up, so that retries do not
// come too early.
func (e *Error) Headers() map[string][]string {
	h := map[string][]string{
		HeaderServiceError:     {HeaderValue(e.Description)},
		HeaderServiceErrorCode: {strconv.Itoa(e.Code)},
	}
	if e.RetryAfter > 0 {
		h[HeaderRetryAfter] = []string{strconv.FormatInt(ceil(e.RetryAfter, time.Second), 10)}
		h[HeaderRetryAfterMs] = []string{strconv.FormatInt(ceil(e.RetryAfter, time.Millisecond), 10)}
	}
	if rl := e.RateLimit; rl != nil {
		h[HeaderRateLimitLimit] = []string{strconv.FormatInt(rl.Limit, 10)}
		h[HeaderRateLimitRemaining] = []string{strconv.FormatInt(max(rl.Remaining, 0), 10)}
		h[HeaderRateLimitReset] = []string{strconv.FormatInt(ceil(max(rl.Reset, 0), time.Second), 10)}
	}
	return h
}

// ErrorBody is the JSON body of an error reply.
type ErrorBody struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail is an error in an [ErrorBody].
type ErrorDetail struct {
	Code        int    `json:"code"`        // the class, as in HTTP
	ErrCode     int    `json:"err_code"`    // the stable number
	Description string `json:"description"` // one line for people, which may change
}

// Body returns the JSON body of the error reply.
func (e *Error) Body() []byte {
	b, err := json.Marshal(ErrorBody{ErrorDetail{e.Code, e.ErrCode, e.Description}})
	if err != nil {
		panic("wire: two integers and a string do not marshal: " + err.Error())
	}
	return b
}

// ParseError returns the error in a reply, or nil if the reply has no header
// Nats-Service-Error-Code. It takes from the headers what the body lacks, as in replies of
// other NATS services; ErrCode is then 0.
func ParseError(h map[string][]string, body []byte) *Error {
	code := first(h, HeaderServiceErrorCode)
	if code == "" {
		return nil
	}
	var b ErrorBody
	if json.Unmarshal(body, &b) != nil {
		b = ErrorBody{}
	}
	class, err := strconv.Atoi(code)
	if err != nil {
		class = b.Error.Code
	}
	e := &Error{
		Code:        cmp.Or(class, 500), // it is an error in any case
		ErrCode:     b.Error.ErrCode,
		Description: cmp.Or(b.Error.Description, first(h, HeaderServiceError)),
		RateLimit:   parseRateLimit(h),
	}
	if n, err := strconv.ParseInt(first(h, HeaderRetryAfterMs), 10, 64); err == nil {
		e.RetryAfter, _ = millis(n)
	} else if n, err := strconv.ParseInt(first(h, HeaderRetryAfter), 10, 32); err == nil && n > 0 {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	return e
}

// parseRateLimit returns nil unless all three headers are valid.
func parseRateLimit(h map[string][]string) *RateLimit {
	limit, err1 := strconv.ParseUint(first(h, HeaderRateLimitLimit), 10, 63)
	remaining, err2 := strconv.ParseUint(first(h, HeaderRateLimitRemaining), 10, 63)
	reset, err3 := strconv.ParseUint(first(h, HeaderRateLimitReset), 10, 32)
	if err1 != nil || err2 != nil || err3 != nil {
		return nil
	}
	return &RateLimit{Limit: int64(limit), Remaining: int64(remaining), Reset: time.Duration(reset) * time.Second}
}

// first returns the first value of a header whose name is given in any case.
func first(h map[string][]string, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	for k, v := range h {
		if len(v) > 0 && strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}

func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}
