package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// WantedFunc returns how many messages of a queue are wanted within a horizon. It may be called
// from any goroutine. An error that is no *wire.Error says why fila does not serve now.
type WantedFunc func(queue string, horizon time.Duration) (api.QueueWanted, error)

// maxScaleQueues bounds the queues of one request.
const maxScaleQueues = 100

// scaleHandler answers GET /scale/<queue>[,<queue>...] with an [api.Scale] for autoscalers.
func scaleHandler(wanted WantedFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, err := scaleOptions(r.URL.Query())
		names := strings.Split(r.PathValue("queues"), ",")
		if err == nil && len(names) > maxScaleQueues {
			err = fmt.Errorf("%d queues: allowed are 1 to %d, separated by commas", len(names), maxScaleQueues)
		}
		if err != nil {
			answer(w, http.StatusBadRequest, err.Error())
			return
		}
		queues := make([]api.QueueWanted, len(names))
		for i, name := range names {
			if queues[i], err = wanted(name, o.Horizon); err != nil {
				code := http.StatusServiceUnavailable
				if refused := (*wire.Error)(nil); errors.As(err, &refused) {
					code = refused.Code
				}
				answer(w, code, err.Error())
				return
			}
		}
		body, err := json.Marshal(o.Scale(queues))
		if err != nil {
			answer(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(append(body, '\n')) // fails only if the client has gone
	})
}

// scaleOptions parses the parameters of a request.
func scaleOptions(given url.Values) (o api.ScaleOptions, err error) {
	o = api.DefaultScaleOptions()
	for name, values := range given {
		if len(values) > 1 {
			return o, fmt.Errorf("%s is given %d times", name, len(values))
		}
		value := values[0]
		switch name {
		case "per_worker":
			if o.PerWorker, err = strconv.Atoi(value); err != nil {
				return o, fmt.Errorf("per_worker is %q: allowed are 1 to %d", value, api.MaxPerWorker)
			}
		case "target_wait":
			if o.TargetWait, err = time.ParseDuration(value); err != nil {
				return o, fmt.Errorf("target_wait is %q: allowed are 1s to 24h, as in 30s", value)
			}
		case "horizon":
			if o.Horizon, err = time.ParseDuration(value); err != nil {
				return o, fmt.Errorf("horizon is %q: allowed are %s", value, wire.HorizonsText())
			}
		default:
			return o, fmt.Errorf("unknown parameter %q: allowed are per_worker, target_wait and horizon", name)
		}
	}
	return o, o.Check()
}
