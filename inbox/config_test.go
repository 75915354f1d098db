package inbox

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
)

// TestRetriesAreConfiguredLikeArrivals: what a consumer and the relay that retries its parked messages have in common is passed on.
func TestRetriesAreConfiguredLikeArrivals(t *testing.T) {
	t.Parallel()
	own := map[string]string{ // why a field of the same name is not passed on
		"AttemptTimeout": "the consumer bounds the call of the handler",
		"Concurrency":    "that of the relay is RetryConcurrency",
		"Disabled":       "the consumer does not run the relay at all",
		"Interceptors":   "they wrap the handler, inside its transaction",
		"Observer":       "it is of another type: Observer.Parked",
		"Propagator":     "it restores the context of the handler",
	}
	cfg := ConsumerConfig{RetryConcurrency: 7}
	from, to := reflect.ValueOf(&cfg).Elem(), reflect.TypeFor[relay.Config]()
	for i := range from.NumField() {
		field := from.Type().Field(i)
		if _, shared := to.FieldByName(field.Name); !shared || own[field.Name] != "" {
			continue
		}
		from.Field(i).Set(someValue(t, field))
		got := reflect.ValueOf(cfg.relay()).FieldByName(field.Name)
		if want := from.Field(i); !reflect.DeepEqual(got.Interface(), want.Interface()) {
			t.Errorf("the relay's %s is %v, the consumer's %v; pass it on, or say here why not", field.Name, got, want)
		}
	}
	if got := cfg.relay(); got.Concurrency != cfg.RetryConcurrency || got.AttemptTimeout >= 0 {
		t.Errorf("the relay has a concurrency of %d and a timeout of %s, want %d and none", got.Concurrency, got.AttemptTimeout, cfg.RetryConcurrency)
	}
}

// noGate is a gate.
type noGate struct{ relay.Gate }

// someValue is a value for a field that is not its default.
func someValue(t *testing.T, field reflect.StructField) reflect.Value {
	switch field.Type {
	case reflect.TypeFor[relay.Gate]():
		return reflect.ValueOf(noGate{})
	case reflect.TypeFor[*slog.Logger]():
		return reflect.ValueOf(slog.New(slog.DiscardHandler))
	case reflect.TypeFor[[]relay.Policy]():
		return reflect.ValueOf([]relay.Policy{{Types: []string{"t"}, MaxAttempts: 7}})
	}
	switch v := reflect.New(field.Type).Elem(); v.Kind() {
	case reflect.String:
		v.SetString("x")
		return v
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(time.Minute))
		return v
	default:
		t.Fatalf("give a value for %s, a %s", field.Name, field.Type)
		return v
	}
}
