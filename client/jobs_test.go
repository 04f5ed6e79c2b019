package client

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire/api"
)

// The subject of a job names its op and queue, for permissions. If a fila does not serve such
// subjects, the client sends the request on the subject without them.
func TestJobsAreMadeBySubject(t *testing.T) {
	srv := startNATS(t)
	f, c := startFake(t, srv), newClient(t, srv)
	job := api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobRedrive, Filter: &api.Filter{All: true}}
	_, err := c.JobCreate(t.Context(), job)
	require.ErrorIs(t, err, ErrNoFila)
	require.ErrorContains(t, err, "fila.admin.job-create.redrive.orders.dlq")

	asked := make(chan string, 9)
	answer := func(m *nats.Msg) {
		asked <- m.Subject
		f.reply(m, api.JobInfo{ID: "7", JobCreateRequest: job})
	}
	older := f.handle("fila.admin.job-create", answer)
	info, err := c.JobCreate(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, "7", info.ID)
	require.Equal(t, "fila.admin.job-create", <-asked)

	f.handle("fila.admin.job-create.>", answer)
	_, err = c.JobCreate(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, "fila.admin.job-create.redrive.orders.dlq", <-asked)
	require.NoError(t, older.Unsubscribe())

	for _, bad := range []api.JobCreateRequest{{Queue: "orders", Op: ""}, {Queue: "orders", Op: "*"}, {Queue: "a b", Op: api.JobMove}, {Queue: ">", Op: api.JobMove}} {
		_, err = c.JobCreate(t.Context(), bad)
		var refused *Error
		require.ErrorAs(t, err, &refused, "%+v", bad)
		require.Equal(t, 400, refused.Code)
	}
	require.Empty(t, asked, "what cannot be a subject is not sent")
}

// If the user may only redrive and there is no fila, the error says that there is no fila, not
// that the other subject is not permitted.
func TestJobsOfAUserWhoMayOnlyRedrive(t *testing.T) {
	c := restricted(t, []string{"fila.admin.job-create.redrive.>"}, []string{"_INBOX.>"})
	ctx := patient(t)
	job := api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobRedrive, Filter: &api.Filter{All: true}}
	_, err := c.JobCreate(ctx, job)
	require.ErrorIs(t, err, ErrNoFila)
	require.ErrorContains(t, err, "fila.admin.job-create.redrive.orders.dlq")
	job.Op = api.JobDelete
	_, err = c.JobCreate(ctx, job)
	denied(t, err, false, "fila.admin.job-create.delete.orders.dlq")
}
