package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestScheduleRequestsAreChecked(t *testing.T) {
	good := func() ScheduleAddRequest {
		r, err := VerbScheduleAdd.Parse("", []byte(`{"name":"a","schedule":"@daily","headers":{"tenant":["acme"]},"payload":"eA=="}`))
		require.Nil(t, err)
		require.Equal(t, wire.MissedOne, r.Missed)
		require.Equal(t, "x", string(r.Payload))
		return r
	}
	r := good()
	require.Nil(t, r.Check())
	for _, c := range []struct {
		change func(*ScheduleAddRequest)
		code   int
		want   string
	}{
		{func(r *ScheduleAddRequest) { r.Name = "" }, wire.CodeBadSchedule, "schedule name"},
		{func(r *ScheduleAddRequest) { r.Name = "a/b" }, wire.CodeBadSchedule, "1 to 64 bytes"},
		{func(r *ScheduleAddRequest) { r.Schedule = "" }, wire.CodeBadSchedule, "is missing"},
		{func(r *ScheduleAddRequest) { r.Schedule = strings.Repeat("x", MaxScheduleText+1) }, wire.CodeBadSchedule, "more than 256"},
		{func(r *ScheduleAddRequest) { r.TimeZone = strings.Repeat("x", MaxScheduleText+1) }, wire.CodeBadSchedule, "more than 256"},
		{func(r *ScheduleAddRequest) { r.Missed = "most" }, wire.CodeBadSchedule, "skip, one and all"},
		{func(r *ScheduleAddRequest) { r.TTLMs = 999 }, wire.CodeBadSchedule, "ttl_ms is 999"},
		{func(r *ScheduleAddRequest) { r.Headers = map[string][]string{"Fila-Delay": {"1s"}} }, wire.CodeHeaderReserved, "a schedule cannot set them"},
		{func(r *ScheduleAddRequest) { r.Headers["Nats-TTL"] = nil }, wire.CodeHeaderReserved, "Nats-TTL"},
		{func(r *ScheduleAddRequest) { r.Headers["a b"] = nil }, wire.CodeBadHeaderName, "a b"},
		{func(r *ScheduleAddRequest) { r.Headers["a"] = []string{"x\ny"} }, wire.CodeBadSchedule, "one line of UTF-8"},
		{func(r *ScheduleAddRequest) { r.Headers["a"] = []string{"\xff"} }, wire.CodeBadSchedule, "one line of UTF-8"},
		{func(r *ScheduleAddRequest) { r.Payload = make([]byte, MaxScheduleBytes-9) }, wire.CodeMessageTooLarge, "65537 bytes"},
	} {
		r := good()
		c.change(&r)
		err := r.Check()
		require.NotNil(t, err, c.want)
		require.Equal(t, c.code, err.ErrCode, err.Description)
		require.Contains(t, err.Description, c.want)
	}
	_, err := VerbScheduleList.Parse("", []byte(`{"limit":0}`))
	require.Equal(t, wire.CodeBadField, err.ErrCode)
	_, err = VerbScheduleList.Parse("", []byte(`{"queue":"a b"}`))
	require.Equal(t, wire.CodeBadQueueName, err.ErrCode)
	_, err = VerbScheduleAdd.Parse("", []byte(`{"cron":"x"}`))
	require.Equal(t, wire.CodeUnknownField, err.ErrCode)
}

func TestScheduleListsAreShortened(t *testing.T) {
	l := ScheduleList{}
	for _, name := range []string{"a", "b", "c"} {
		l.Schedules = append(l.Schedules, ScheduleInfo{Queue: "q", Name: name, Schedule: strings.Repeat("x", 3000)})
	}
	l.Shorten(9000)
	require.Len(t, l.Schedules, 2)
	require.Equal(t, "q/b", l.Next)
}
