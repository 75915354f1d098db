package protect

import (
	"log/slog"
	"runtime/debug"
	"sync/atomic"
)

// Observer calls the functions of a user's observer until one of them panics. The zero value is ready.
type Observer struct{ panicked atomic.Bool }

// Call calls f, unless an earlier call panicked. It logs the panic with attrs, which say whose observer it is.
func (o *Observer) Call(logger *slog.Logger, f func(), attrs ...any) {
	if o.panicked.Load() {
		return
	}
	defer func() {
		if v := recover(); v != nil && o.panicked.CompareAndSwap(false, true) {
			logger.Error("observer panicked and will not be called again", append(attrs, "panic", v, "stack", string(debug.Stack()))...)
		}
	}()
	f()
}
