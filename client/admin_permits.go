package client

import (
	"context"

	"github.com/filaq/fila/wire"
)

// GuardPermits returns a page of the permits of the guard that are held and that a filter
// means. The first page says as well which keys and callers hold the most. A limit of 0 is
// the server's default.
func (c *Client) GuardPermits(ctx context.Context, what GuardPermitsRequest) (GuardPermitList, error) {
	if err := checkPermitFilter(&what.PermitFilter); err != nil {
		return GuardPermitList{}, err
	}
	if what.Limit == 0 {
		what.Limit = wire.DefaultListLimit
	}
	return admin[GuardPermitList](ctx, c, wire.VerbGuardPermits, "", what)
}

// GuardEnd ends permits of the guard, by a filter or by their ids. What they hold is given
// back, and their circuits hear nothing. The calls may go on: end what is known to be over.
func (c *Client) GuardEnd(ctx context.Context, what GuardEndRequest) (GuardEndReply, error) {
	if err := checkPermitFilter(&what.PermitFilter); err != nil {
		return GuardEndReply{}, err
	}
	return admin[GuardEndReply](ctx, c, wire.VerbGuardEnd, "", what)
}

// checkPermitFilter refuses what JSON would change on its way.
func checkPermitFilter(f *PermitFilter) error {
	if f.Key == "" {
		return nil
	}
	return checkGateKey(f.Key)
}
