package e2e

import (
	"fmt"
	"time"
)

// failed nacks the next delivery, and returns it with the time of the nack.
func (k *consumer) failed(code, text string) (delivery, time.Time) {
	k.c.t.Helper()
	d := k.next()
	at := time.Now()
	k.c.accepted(d, fmt.Sprintf(`-NAK {"code":%q,"error":%q}`, code, text))
	return d, at
}
