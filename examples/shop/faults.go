package shop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/postrider/postrider"
)

// Faults lets handlers fail on purpose, by the type of their message. It is for demonstrations: a service that has it offers
// POST /faults to everybody who reaches its port.
type Faults struct {
	mu    sync.Mutex
	types map[string]bool
}

// errFault is the error of a handler that fails on purpose.
var errFault = errors.New("this handler fails on purpose: POST /faults")

// Set turns the failure of a message type on or off.
func (f *Faults) Set(messageType string, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.types == nil {
		f.types = make(map[string]bool)
	}
	f.types[messageType] = on
}

// intercept lets the handlers of these types fail.
func (f *Faults) intercept(next postrider.Handler) postrider.Handler {
	return func(ctx context.Context, m *postrider.Message) error {
		f.mu.Lock()
		fails := f.types[m.Type]
		f.mu.Unlock()
		if fails {
			return errFault
		}
		return next(ctx, m)
	}
}

// handle answers POST /faults?type=card.charge&fail=true.
func (f *Faults) handle(w http.ResponseWriter, r *http.Request) {
	messageType, fail := r.FormValue("type"), r.FormValue("fail")
	if messageType == "" || fail != "true" && fail != "false" {
		http.Error(w, "write /faults?type=card.charge&fail=true or fail=false", http.StatusBadRequest)
		return
	}
	f.Set(messageType, fail == "true")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "handlers of %s fail: %s\n", messageType, fail) //nolint:gosec // plain text
}
