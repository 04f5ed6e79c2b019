package wire

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestParseAck(t *testing.T) {
	nack := Ack{Kind: AckNack}
	cost := func(thousandths uint32) Ack { return Ack{Kind: AckDone, Cost: thousandths, HasCost: true} }
	delayed := func(d time.Duration) Ack { return Ack{Kind: AckNack, Delay: d, HasDelay: true} }
	for _, tc := range []struct {
		payload string
		h       header
		want    Ack
	}{
		{"", nil, Ack{Kind: AckDone}},
		{"", header{}, Ack{Kind: AckDone}},
		{"", header{"tenant": {"x"}}, Ack{Kind: AckDone}},
		{"", header{HeaderStatus: {}}, Ack{Kind: AckDone}},
		{"+ACK", nil, Ack{Kind: AckDone}},
		{"+OK", nil, Ack{Kind: AckDone}},
		{"+NXT", nil, Ack{Kind: AckDone}},
		{"+ACK", header{HeaderError: {"ignored"}, HeaderRetryAfterMs: {"bad"}}, Ack{Kind: AckDone}},
		{"+WPI", nil, Ack{Kind: AckProgress}},

		{"+ACK {}", nil, Ack{Kind: AckDone}},
		{`+ACK {"cost": 3120}`, nil, cost(3_120_000)},
		{`+ACK{"cost":0.0015}`, nil, cost(2)},
		{`+ACK {"cost":0}`, nil, cost(0)},
		{`+ACK {"cost":1e6}`, nil, cost(1_000_000_000)},
		{`+ACK {"cost":null}`, nil, Ack{Kind: AckDone}},
		{"", header{HeaderCost: {"12.5"}}, cost(12_500)},
		{"+ACK", header{"fila-cost": {" 0 "}}, cost(0)},
		{"+OK", header{HeaderCost: {"1e6"}}, cost(1_000_000_000)},
		{"+NXT", header{HeaderCost: {"1"}}, cost(1000)},
		{"+ACK {}", header{HeaderCost: {"7"}}, cost(7000)},
		{`+ACK {"cost":5}`, header{HeaderCost: {"7"}}, cost(5000)}, // the payload wins
		{"+WPI", header{HeaderCost: {"bad"}}, Ack{Kind: AckProgress}},
		{"-NAK", header{HeaderCost: {"bad"}}, Ack{Kind: AckNack}},
		{"+TERM", header{HeaderCost: {"bad"}}, Ack{Kind: AckTerm}},

		{"", header{HeaderStatus: {"503"}}, Ack{Kind: AckNoResponders}},
		{"", header{"status": {"503"}}, Ack{Kind: AckNoResponders}},
		{"", header{HeaderStatus: {"503", "503"}, "Description": {"No Responders"}}, Ack{Kind: AckNoResponders}},

		{`+ACK {"cost":5,"remaining":1200.5,"reset_ms":800}`, nil, Ack{Kind: AckDone, Cost: 5000, HasCost: true, Feedback: &Feedback{1_200_500, 800 * time.Millisecond}}},
		{`+ACK {"remaining":0}`, nil, Ack{Kind: AckDone, Feedback: &Feedback{}}},
		{`-NAK {"code":"429","remaining":0,"reset_ms":60000}`, nil, Ack{Kind: AckNack, ErrorCode: "429", Feedback: &Feedback{0, time.Minute}}},
		{`-NAK {"code":"429","cost":0}`, nil, Ack{Kind: AckNack, ErrorCode: "429", HasCost: true}},
		{"-NAK", nil, nack},
		{"-NAK ", nil, nack},
		{"-NAK\n", nil, nack},
		{"-NAK {}", nil, nack},
		{`-NAK {"delay": 1000000000}`, nil, delayed(time.Second)},
		{`-NAK{"delay":1000000000}`, nil, delayed(time.Second)},
		{`-NAK {"delay":0}`, nil, delayed(0)},
		{`-NAK {"delay":-0}`, nil, delayed(0)},
		{`-NAK {"delay":null}`, nil, nack},
		{`-NAK {"delay":1e9}`, nil, delayed(time.Second)},
		{`-NAK {"delay":1000000000.0}`, nil, delayed(time.Second)},
		{`-NAK {"delay":0.9}`, nil, delayed(0)},
		{`-NAK {"delay":"1m30s"}`, nil, delayed(90 * time.Second)},
		{`-NAK {"delay":31536000000000000}`, nil, delayed(MaxNackDelay)},
		{`-NAK {"delay":"8760h"}`, nil, delayed(MaxNackDelay)},
		{"-NAK 30s", nil, delayed(30 * time.Second)},
		{"-NAK 0", nil, delayed(0)},
		{"-NAK\t1.5h ", nil, delayed(90 * time.Minute)},
		{"-NAK 8760h", nil, delayed(MaxNackDelay)},
		{
			`-NAK {"delay":"5s","error":"card declined","code":"card","retry_after_ms":1500}`, nil,
			Ack{Kind: AckNack, Delay: 5 * time.Second, HasDelay: true, Error: "card declined", ErrorCode: "card", RetryAfter: 1500 * time.Millisecond},
		},
		{`-NAK {"error":"a\nb","code":null,"retry_after_ms":null}`, nil, Ack{Kind: AckNack, Error: "a\nb"}},
		{
			"-NAK",
			header{HeaderError: {"boom"}, HeaderErrorCode: {"E1"}, HeaderRetryAfterMs: {" 250 "}},
			Ack{Kind: AckNack, Error: "boom", ErrorCode: "E1", RetryAfter: 250 * time.Millisecond},
		},
		{
			"-NAK 1s",
			header{"fila-error": {"boom"}, "FILA-ERROR-CODE": {"E1"}, "Fila-retry-after-ms": {"0"}},
			Ack{Kind: AckNack, Delay: time.Second, HasDelay: true, Error: "boom", ErrorCode: "E1"},
		},
		{ // where both speak the payload wins
			`-NAK {"error":"p","code":"pc","retry_after_ms":1}`,
			header{HeaderError: {"h"}, HeaderErrorCode: {"hc"}, HeaderRetryAfterMs: {"2"}},
			Ack{Kind: AckNack, Error: "p", ErrorCode: "pc", RetryAfter: time.Millisecond},
		},
		{ // and each field for itself
			`-NAK {"code":"pc"}`,
			header{HeaderError: {"h"}, HeaderErrorCode: {"hc"}},
			Ack{Kind: AckNack, Error: "h", ErrorCode: "pc"},
		},
		{ // a payload that says "now" is not overruled
			`-NAK {"retry_after_ms":0}`,
			header{HeaderRetryAfterMs: {"2000"}},
			Ack{Kind: AckNack},
		},
		{"+TERM", nil, Ack{Kind: AckTerm}},
		{"+TERM poison", nil, Ack{Kind: AckTerm, Error: "poison"}},
		{"+TERM  two words \n", nil, Ack{Kind: AckTerm, Error: "two words"}},
		{`+TERM {"error":"no account","code":"E7"}`, nil, Ack{Kind: AckTerm, Error: "no account", ErrorCode: "E7"}},
		{`+TERM{"code":"E7"}`, nil, Ack{Kind: AckTerm, ErrorCode: "E7"}},
		{`+TERM {}`, header{HeaderError: {"boom"}, HeaderErrorCode: {"E1"}}, Ack{Kind: AckTerm, Error: "boom", ErrorCode: "E1"}},
		{`+TERM {"code":"E7"}`, header{HeaderErrorCode: {"E1"}}, Ack{Kind: AckTerm, ErrorCode: "E7"}},
		{"+TERM", header{HeaderError: {"boom"}, HeaderErrorCode: {"E1"}}, Ack{Kind: AckTerm, Error: "boom", ErrorCode: "E1"}},
		{"+TERM why", header{HeaderError: {"boom"}}, Ack{Kind: AckTerm, Error: "why"}},
	} {
		got, err := ParseAck([]byte(tc.payload), tc.h)
		require.Nil(t, err, "%q %v", tc.payload, tc.h)
		require.Equal(t, tc.want, got, "%q %v", tc.payload, tc.h)
	}
}

func TestParseAckRefused(t *testing.T) {
	for _, tc := range []struct {
		payload string
		h       header
		code    int
	}{
		{" ", nil, CodeBadAckPayload},
		{"\n", nil, CodeBadAckPayload},
		{"\x00", nil, CodeBadAckPayload},
		{"ACK", nil, CodeBadAckPayload},
		{"+ack", nil, CodeBadAckPayload},
		{"+ACK ", nil, CodeBadAckPayload},
		{"+ACK\n", nil, CodeBadAckPayload},
		{"+ACKED", nil, CodeBadAckPayload},
		{"+ACK 5", nil, CodeBadAckPayload},
		{`+ACK {"reset_ms":5}`, nil, CodeBadAckPayload},
		{`+ACK {"remaining":-1}`, nil, CodeBadAckPayload},
		{`-NAK {"remaining":1,"reset_ms":-1}`, nil, CodeBadAckPayload},
		{`-NAK {"cost":1000001}`, nil, CodeBadAckPayload},
		{"+ACK done", nil, CodeBadAckPayload},
		{"+ACK {", nil, CodeBadAckPayload},
		{`+ACK {"cost":-1}`, nil, CodeBadAckPayload},
		{`+ACK {"cost":-0}`, nil, CodeBadAckPayload},
		{`+ACK {"cost":1000000.001}`, nil, CodeBadAckPayload},
		{`+ACK {"cost":1e400}`, nil, CodeBadAckPayload},
		{`+ACK {"cost":"5"}`, nil, CodeBadAckPayload},
		{`+ACK {"cost":NaN}`, nil, CodeBadAckPayload},
		{`+ACK {"cost":5,"cost":5}`, nil, CodeBadAckPayload},
		{`+ACK {"costs":5}`, nil, CodeBadAckPayload},
		{`+ACK {"Cost":5}`, nil, CodeBadAckPayload},
		{`+OK {"cost":5}`, nil, CodeBadAckPayload},
		{`+WPI {"cost":5}`, nil, CodeBadAckPayload},
		{"", header{HeaderCost: {""}}, CodeBadAckHeader},
		{"", header{HeaderCost: {"null"}}, CodeBadAckHeader},
		{"", header{HeaderCost: {"-1"}}, CodeBadAckHeader},
		{"", header{HeaderCost: {"0x10"}}, CodeBadAckHeader},
		{"", header{HeaderCost: {"Inf"}}, CodeBadAckHeader},
		{"+ACK", header{HeaderCost: {"1000001"}}, CodeBadAckHeader},
		{`+ACK {"cost":5}`, header{HeaderCost: {"x"}}, CodeBadAckHeader},
		{"", header{HeaderCost: {"1", "2"}}, CodeHeaderRepeated},
		{"+OKAY", nil, CodeBadAckPayload},
		{"+NXT 5", nil, CodeBadAckPayload},
		{"+WPI ", nil, CodeBadAckPayload},
		{"+TERMINATE", nil, CodeBadAckPayload},
		{`+TERM{"a":1}`, nil, CodeBadAckPayload},
		{`+TERM {"error_code":"E7"}`, nil, CodeBadAckPayload},
		{`+TERM {"code":7}`, nil, CodeBadAckPayload},
		{`+TERM {"error":"half`, nil, CodeBadAckPayload},
		{"-NAKED", nil, CodeBadAckPayload},
		{"-NAK30s", nil, CodeBadAckPayload},
		{"-nak", nil, CodeBadAckPayload},
		{"done", nil, CodeBadAckPayload},
		{"{}", nil, CodeBadAckPayload},

		{"-NAK soon", nil, CodeBadAckPayload},
		{"-NAK 30", nil, CodeBadAckPayload},
		{"-NAK -1s", nil, CodeBadAckPayload},
		{"-NAK NaN", nil, CodeBadAckPayload},
		{"-NAK 8760h1ns", nil, CodeBadAckPayload},
		{"-NAK 99999999999h", nil, CodeBadAckPayload},
		{"-NAK [1]", nil, CodeBadAckPayload},
		{"-NAK {", nil, CodeBadAckPayload},
		{"-NAK {} {}", nil, CodeBadAckPayload},
		{`-NAK {"delay":-1}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":-1.5}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":-0.0}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":NaN}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":Infinity}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":1e400}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":1e17}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":31536000000000001}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":9223372036854775808}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":"-1s"}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":""}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":"30"}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":"8761h"}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":true}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":{}}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":[1]}`, nil, CodeBadAckPayload},
		{`-NAK {"delay":1,"delay":2}`, nil, CodeBadAckPayload},
		{`-NAK {"Delay":1}`, nil, CodeBadAckPayload},
		{`-NAK {"dely":1}`, nil, CodeBadAckPayload},
		{`-NAK {"error":1}`, nil, CodeBadAckPayload},
		{`-NAK {"code":{}}`, nil, CodeBadAckPayload},
		{`-NAK {"retry_after_ms":-1}`, nil, CodeBadAckPayload},
		{`-NAK {"retry_after_ms":1.5}`, nil, CodeBadAckPayload},
		{`-NAK {"retry_after_ms":"1"}`, nil, CodeBadAckPayload},
		{`-NAK {"retry_after_ms":31536000001}`, nil, CodeBadAckPayload},
		{"-NAK {\"error\":\"\xff\"}", nil, CodeBadAckPayload},

		{"", header{HeaderStatus: {"404"}}, CodeBadAckStatus},
		{"", header{HeaderStatus: {""}}, CodeBadAckStatus},
		{"", header{HeaderStatus: {"503 "}}, CodeBadAckStatus},
		{"", header{"STATUS": {"100"}}, CodeBadAckStatus},
		{"+ACK", header{HeaderStatus: {"200"}}, CodeBadAckStatus},
		{"+ACK", header{HeaderStatus: {"503"}}, CodeBadAckStatus},
		{"-NAK", header{HeaderStatus: {"503"}}, CodeBadAckStatus},
		{"", header{HeaderStatus: {"503", "200"}}, CodeHeaderRepeated},
		{"", header{HeaderStatus: {"503"}, "status": {"200"}}, CodeHeaderRepeated},

		{"-NAK", header{HeaderRetryAfterMs: {""}}, CodeBadAckHeader},
		{"-NAK", header{HeaderRetryAfterMs: {"-1"}}, CodeBadAckHeader},
		{"-NAK", header{HeaderRetryAfterMs: {"1.5"}}, CodeBadAckHeader},
		{"-NAK", header{HeaderRetryAfterMs: {"1s"}}, CodeBadAckHeader},
		{"-NAK", header{HeaderRetryAfterMs: {"NaN"}}, CodeBadAckHeader},
		{"-NAK", header{HeaderRetryAfterMs: {"31536000001"}}, CodeBadAckHeader},
		{"-NAK", header{HeaderRetryAfterMs: {"99999999999999999999"}}, CodeBadAckHeader},
		{"+TERM", header{HeaderRetryAfterMs: {"x"}}, CodeBadAckHeader},
		{`-NAK {"retry_after_ms":1}`, header{HeaderRetryAfterMs: {"x"}}, CodeBadAckHeader},
		{"-NAK", header{HeaderError: {"a", "b"}}, CodeHeaderRepeated},
		{"-NAK", header{HeaderErrorCode: {"a"}, "fila-error-code": {"b"}}, CodeHeaderRepeated},
		{"-NAK", header{HeaderRetryAfterMs: {"1", "2"}}, CodeHeaderRepeated},
	} {
		got, err := ParseAck([]byte(tc.payload), tc.h)
		require.NotNil(t, err, "%q %v", tc.payload, tc.h)
		require.Equal(t, tc.code, err.ErrCode, "%q %v: %v", tc.payload, tc.h, err)
		require.Equal(t, 400, err.Code)
		require.Zero(t, got)
	}
}

func TestParseNack(t *testing.T) {
	for _, tc := range []struct {
		payload string
		h       header
		want    Ack
	}{
		{"", nil, Ack{Kind: AckNack}},
		{"card declined", nil, Ack{Kind: AckNack, Error: "card declined"}},
		{"+ACK", nil, Ack{Kind: AckNack, Error: "+ACK"}},
		{`{"delay":1}`, nil, Ack{Kind: AckNack, Error: `{"delay":1}`}},
		{" kept as it is\n", nil, Ack{Kind: AckNack, Error: " kept as it is\n"}},
		{"bad \xff byte", nil, Ack{Kind: AckNack, Error: "bad \uFFFD byte"}},
		{"", header{HeaderError: {"h"}, HeaderErrorCode: {"c"}, HeaderRetryAfterMs: {"10"}}, Ack{Kind: AckNack, Error: "h", ErrorCode: "c", RetryAfter: 10 * time.Millisecond}},
		{"p", header{HeaderError: {"h"}}, Ack{Kind: AckNack, Error: "p"}},
		{"", header{HeaderStatus: {"503"}}, Ack{Kind: AckNoResponders}},
	} {
		got, err := ParseNack([]byte(tc.payload), tc.h)
		require.Nil(t, err, "%q %v", tc.payload, tc.h)
		require.Equal(t, tc.want, got, "%q %v", tc.payload, tc.h)
	}
	for code, h := range map[int]header{
		CodeBadAckStatus:   {HeaderStatus: {"404"}},
		CodeBadAckHeader:   {HeaderRetryAfterMs: {"-5"}},
		CodeHeaderRepeated: {HeaderError: {"a", "b"}},
	} {
		_, err := ParseNack([]byte("text"), h)
		require.NotNil(t, err)
		require.Equal(t, code, err.ErrCode)
	}
	_, err := ParseNack([]byte("text"), header{HeaderStatus: {"503"}})
	require.NotNil(t, err, "a text cannot come from the server")
}

func TestAckTextsAreCut(t *testing.T) {
	long := strings.Repeat("é", 1000)
	a, err := ParseNack([]byte("x"+long), header{HeaderErrorCode: {"y" + long}})
	require.Nil(t, err)
	require.Equal(t, "x"+strings.Repeat("é", 511), a.Error, "1023 bytes: the next rune does not fit")
	require.Equal(t, "y"+strings.Repeat("é", 31), a.ErrorCode)

	a, err = ParseAck([]byte(`-NAK {"error":"`+long+`","code":"`+long+`"}`), nil)
	require.Nil(t, err)
	require.Len(t, a.Error, MaxErrorText)
	require.Len(t, a.ErrorCode, MaxErrorCode)

	a, err = ParseAck([]byte("+TERM "+long), nil)
	require.Nil(t, err)
	require.Len(t, a.Error, MaxErrorText)

	// Replacing bytes that are not UTF-8 must not make the text longer again.
	a, err = ParseNack([]byte(strings.Repeat("a\xff", 600)), nil)
	require.Nil(t, err)
	require.LessOrEqual(t, len(a.Error), MaxErrorText)
	require.True(t, utf8.ValidString(a.Error))

	_, err = ParseAck([]byte(strings.Repeat("z", 1<<20)), nil)
	require.NotNil(t, err)
	require.Less(t, len(err.Description), 300)
}

func TestAckKindString(t *testing.T) {
	var got []string
	for k := range AckNoResponders + 2 {
		got = append(got, k.String())
	}
	require.Equal(t, []string{"AckKind(0)", "ack", "nack", "progress", "term", "no-responders", "AckKind(6)"}, got)
}

func FuzzParseAck(f *testing.F) {
	for _, p := range []string{"", "+ACK", "-NAK 30s", `-NAK {"delay":1e9,"error":"x","code":"y","retry_after_ms":5}`, "+TERM why", `+TERM {"error":"x","code":"y"}`, "+WPI", `+ACK {"cost":3120}`, "\xff"} {
		f.Add([]byte(p), HeaderCost, "1.5", false)
		f.Add([]byte(p), HeaderStatus, "503", false)
		f.Add([]byte(p), HeaderRetryAfterMs, "12", true)
		f.Add([]byte(p), "fila-error", "boom", true)
	}
	f.Fuzz(func(t *testing.T, payload []byte, k, v string, nack bool) {
		parse := ParseAck
		if nack {
			parse = ParseNack
		}
		for _, h := range []header{nil, {k: {v}}} {
			a, err := parse(payload, h)
			if err != nil {
				require.Equal(t, 400, err.Code)
				require.Zero(t, a)
				require.Less(t, len(err.Description), 2000)
				require.NotContains(t, err.Description, "\n")
				continue
			}
			status, _ := find(h, HeaderStatus)
			require.Equal(t, status.set, a.Kind == AckNoResponders)
			require.True(t, !status.set || len(payload) == 0)
			require.True(t, a.Delay >= 0 && a.Delay <= MaxNackDelay, a.Delay)
			require.True(t, a.HasDelay || a.Delay == 0)
			require.True(t, a.RetryAfter >= 0 && a.RetryAfter <= MaxNackDelay, a.RetryAfter)
			require.True(t, len(a.Error) <= MaxErrorText && len(a.ErrorCode) <= MaxErrorCode)
			require.True(t, utf8.ValidString(a.Error) && utf8.ValidString(a.ErrorCode))
			switch a.Kind {
			case AckDone:
				require.LessOrEqual(t, a.Cost, uint32(MaxAckCost*1000))
				require.True(t, a.HasCost || a.Cost == 0)
				require.Equal(t, Ack{Kind: a.Kind, Cost: a.Cost, HasCost: a.HasCost}, a)
			case AckProgress, AckNoResponders:
				require.Equal(t, Ack{Kind: a.Kind}, a)
			case AckTerm:
				require.False(t, a.HasDelay)
			default:
				require.Equal(t, AckNack, a.Kind)
			}
		}
	})
}
