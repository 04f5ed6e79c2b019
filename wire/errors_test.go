package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// everyError calls each constructor once.
func everyError() []*Error {
	v, err := "5", errors.New("why\nnot")
	return []*Error{
		BadJSON("x"), UnknownField("x", nil), BadField("x", "1", "y"), BadReplySubject("fila.ack", "y"), BadSubject("x"),
		BadQueueName(err), ReservedName("x.dlq"), BadConsumerName(err), BadConfigKey(err),
		BadQueueSettings(err), HookLoad("q", HookOnEnqueue, err.Error()), NotForDLQ("enqueue", "q.dlq"), OnlyForDLQ("redrive", "q"),
		QueueNotFound("q"), QueueExists("q", []string{"quantum is 1, not 2"}), QueueNotEmpty("q", 3),
		BadDelay("x"), BadNotBefore("x"), DelayAndNotBefore(), BadTTL("x"), BadMsgID(""), BadMessageKey("fairness", "x"), BadHeaderValue("x", "y", "z"), HeaderReserved("x", "allowed are others"), HeaderRepeated(HeaderTTL), BadHeaderName("a b"), BadBatch("x"), PredecessorRefused(1, "k", time.Second), PredecessorRefused(1, "", 0),
		HeadersTooLarge(2, 1), TooManyHeaders(2, 1), MessageTooLarge(2, 1), ReplyTooLarge(2, 1), BacklogMessages("q", 1, time.Second), BacklogBytes("q", 1, time.Second), BacklogUncommitted(time.Second), BacklogLog(3, time.Second), BudgetEmpty("k", 1, time.Second),
		EnqueueRate("q", "", RateLimit{Limit: 10, Remaining: 1, Reset: 2 * time.Second}, time.Second),
		EnqueueRate("q", "k", RateLimit{}, 0), KeyPending("q", "k", 5, time.Second),
		TokenRefused(), BadAckPayload("x"), BadAckStatus("x"), BadAckHeader(HeaderRetryAfterMs, "x", "y"), MessageNotFound("q", "id"), MessageNotFound("", "id"), MessageInFlight("q", "id", "why"), JobNotFound("id"), JobCount(1, 2), BadSchedule("x"), ScheduleNotFound("q", "x"), JobEnded("id", "done"), KeyNotFound("q", "k"), LeaseLost(),
		BadConfigValue("k", "x", "y"), ConfigKeyNotFound("k"), ConfigMismatch("k", &v), ConfigMismatch("k", nil),
		HookNotFound("q", ""), HookNotFound("q", HookOnEnqueue),
		GuardPair("a", "b"), PermitRefused("a"), PermitNotFound("a"), PermitAway("a", time.Second),
		BadThrottle("x"), ThrottleNotFound("k"), BudgetNotFound("k"), CircuitNotFound("k"), PauseNotFound("key", "q", "k"), PauseNotFound("queue", "", "q"),
		ThrottleMismatch("k", "rate", ""), ThrottleMismatch("k", "rate", "5"), Owned("throttle:k", "team", "rate 5"), ReloadFailed(err),
		NoCluster(), NodeNotFound("n"), NodeSilent("n"), NoSuchShard(8, 8), StandbyNotReady(1, "n"), LogLost("q"), NotRepaired(1, "why"),
		LimitReached("queues", 10, 0), OutcomeUnknown(), Internal("x"), Draining(), StoreFailed(), DiskLow(1, 2, time.Second), NoOwner("a"), NotTaken("a", "why"), ShardsMissing([]int{1, 2}), SharedAway("k", err), FieldRepeated("x"), BackupFailed("why\nnot"),
	}
}

func TestCountsInWords(t *testing.T) {
	for want, e := range map[string]*Error{
		`queue "q" has 1 message, dead letters included, and force is not set`:    QueueNotEmpty("q", 1),
		`queue "q" has 2 messages, dead letters included, and force is not set`:   QueueNotEmpty("q", 2),
		`queue "q" is full: max_depth is 1 message`:                               BacklogMessages("q", 1, 0),
		`fairness key "k" of queue "q" is full: max_pending_per_key is 1 message`: KeyPending("q", "k", 1, 0),
	} {
		require.Equal(t, want, e.Description)
	}
}

func TestCatalog(t *testing.T) {
	entries := Catalog()
	codes, names := map[int]bool{}, map[string]bool{}
	for _, e := range entries {
		require.False(t, codes[e.ErrCode], "%d twice", e.ErrCode)
		require.False(t, names[e.Name], "%s twice", e.Name)
		codes[e.ErrCode], names[e.Name] = true, true
		require.Equal(t, e.ErrCode%1000, e.Code)
		require.Contains(t, []int{400, 404, 409, 413, 429, 500, 503}, e.Code)
		require.True(t, e.ErrCode >= 10400 && e.ErrCode < 100_000)
		require.Regexp(t, `^[a-z]+(_[a-z]+)*$`, e.Name)
		require.True(t, strings.HasSuffix(e.Meaning, "."), e.Meaning)
	}

	// Each error has an entry, and each entry a constructor that makes it.
	made := map[int]bool{}
	for _, e := range everyError() {
		require.True(t, codes[e.ErrCode], "%d is not in the catalogue", e.ErrCode)
		require.Equal(t, e.ErrCode%1000, e.Code)
		require.NotEmpty(t, e.Description)
		require.NotContains(t, e.Description, "\n")
		made[e.ErrCode] = true
	}
	require.Equal(t, codes, made)

	entries[0].Name = "changed"
	require.NotEqual(t, "changed", Catalog()[0].Name, "a copy")
}

func TestErrorReply(t *testing.T) {
	e := BacklogMessages("orders", 10, 1001*time.Millisecond+1)
	require.Equal(t, header{
		"Nats-Service-Error":      {`queue "orders" is full: max_depth is 10 messages`},
		"Nats-Service-Error-Code": {"429"},
		"Retry-After":             {"2"},
		"Fila-Retry-After-Ms":     {"1002"},
	}, header(e.Headers()))
	require.JSONEq(t, `{"error":{"code":429,"err_code":10429,"description":"queue \"orders\" is full: max_depth is 10 messages"}}`, string(e.Body()))
	require.Equal(t, `queue "orders" is full: max_depth is 10 messages (429, err_code 10429)`, e.Error())

	require.Equal(t, header{HeaderServiceError: {LeaseLost().Description}, HeaderServiceErrorCode: {"409"}}, header(LeaseLost().Headers()))
	require.Zero(t, LimitReached("queues", 10, -time.Second).RetryAfter)
}

func TestRateLimitHeaders(t *testing.T) {
	e := EnqueueRate("orders", "acme", RateLimit{Limit: 20, Remaining: 0, Reset: 1001 * time.Millisecond}, 100*time.Millisecond)
	require.Equal(t, header{
		"Nats-Service-Error":       {`fairness key "acme" of queue "orders" accepts no messages now: enqueue_rate_per_key is used up (burst 20)`},
		"Nats-Service-Error-Code":  {"429"},
		"Retry-After":              {"1"},
		"Fila-Retry-After-Ms":      {"100"},
		"Fila-RateLimit-Limit":     {"20"},
		"Fila-RateLimit-Remaining": {"0"},
		"Fila-RateLimit-Reset":     {"2"},
	}, header(e.Headers()))
	require.Equal(t, &RateLimit{Limit: 20, Reset: 2 * time.Second}, ParseError(e.Headers(), e.Body()).RateLimit)

	e.RateLimit = &RateLimit{Limit: 1, Remaining: -3, Reset: -time.Second}
	require.Equal(t, []string{"0"}, e.Headers()[HeaderRateLimitRemaining], "a bucket in debt has nothing left")
	require.Equal(t, []string{"0"}, e.Headers()[HeaderRateLimitReset])

	h := header(BacklogMessages("q", 1, time.Second).Headers())
	require.NotContains(t, h, HeaderRateLimitLimit)
	require.Nil(t, ParseError(h, nil).RateLimit)
	h[HeaderRateLimitLimit], h[HeaderRateLimitRemaining] = []string{"5"}, []string{"x"}
	require.Nil(t, ParseError(h, nil).RateLimit)
}

func TestErrorRoundTrip(t *testing.T) {
	for _, e := range everyError() {
		e.RetryAfter = 1500 * time.Millisecond
		require.Equal(t, e, ParseError(e.Headers(), e.Body()))
	}
}

func TestParseError(t *testing.T) {
	require.Nil(t, ParseError(nil, nil))
	require.Nil(t, ParseError(header{"tenant": {"x"}}, LeaseLost().Body()), "only the header tells")
	require.Nil(t, ParseError(header{HeaderServiceErrorCode: {}}, nil))
	for _, tc := range []struct {
		h    header
		body string
		want Error
	}{
		{header{HeaderServiceErrorCode: {"404"}, HeaderServiceError: {"gone"}}, "", Error{Code: 404, Description: "gone"}},
		{header{HeaderServiceErrorCode: {"404"}, HeaderServiceError: {"gone"}}, "not json", Error{Code: 404, Description: "gone"}},
		{header{"nats-service-error-code": {"404"}, "nats-service-error": {"gone"}}, "{}", Error{Code: 404, Description: "gone"}},
		{header{HeaderServiceErrorCode: {"oops"}}, "", Error{Code: 500}},
		{header{HeaderServiceErrorCode: {"429"}, HeaderRetryAfter: {"3"}}, "", Error{Code: 429, RetryAfter: 3 * time.Second}},
		{header{HeaderServiceErrorCode: {"429"}, HeaderRetryAfter: {"3"}, HeaderRetryAfterMs: {"2500"}}, "", Error{Code: 429, RetryAfter: 2500 * time.Millisecond}},
		{header{HeaderServiceErrorCode: {"429"}, HeaderRetryAfter: {"-3"}}, "", Error{Code: 429}},
		{header{HeaderServiceErrorCode: {"429"}, HeaderRetryAfterMs: {"-3"}}, "", Error{Code: 429}},
		{header{HeaderServiceErrorCode: {"409"}}, `{"error":{"code":1,"err_code":10409,"description":"lost"}}`, Error{Code: 409, ErrCode: 10409, Description: "lost"}},
	} {
		got := ParseError(tc.h, []byte(tc.body))
		require.NotNil(t, got)
		require.Equal(t, tc.want, *got)
	}
}

func TestErrorIs(t *testing.T) {
	var err error = QueueNotFound("a")
	require.ErrorIs(t, fmt.Errorf("create: %w", err), QueueNotFound("b"))
	require.NotErrorIs(t, err, LeaseLost())
	require.NotErrorIs(t, err, errors.New("other"))
	require.NotErrorIs(t, err, (*Error)(nil))
	var e *Error
	require.ErrorAs(t, fmt.Errorf("x: %w", err), &e)
	require.Equal(t, CodeQueueNotFound, e.ErrCode)
}

// An error shows the text of a client shortened and quoted, so that it never breaks the line of
// a header.
func TestDescriptionsAreTame(t *testing.T) {
	nasty := strings.Repeat("a\r\nNats-Service-Error-Code: 200\r\n\x00\x1b", 1000)
	for _, e := range []*Error{
		UnknownField(nasty, nil), BadReplySubject(nasty, "y"), BadSubject(nasty), QueueNotFound(nasty), BadDelay(nasty),
		BadHeaderName(nasty), BadField("id", nasty, "y"), BadField("id", strings.Repeat("a", 100_000), "y"), BadConfigValue(nasty, nasty, "y"), ConfigMismatch(nasty, &nasty), BadQueueName(CheckQueueName(nasty)),
	} {
		require.NotContains(t, e.Description, "\r")
		require.NotContains(t, e.Description, "\n")
		require.NotContains(t, e.Description, "\x1b")
		require.Less(t, len(e.Description), 800)
		require.True(t, json.Valid(e.Body()))
		require.Equal(t, 1, reflect.ValueOf(e.Headers()[HeaderServiceError]).Len())
	}
}
