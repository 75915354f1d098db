package status

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
)

// TestJSONHasWhatAStatusHas: a field that is added to a status must also be written as JSON, durations in seconds.
func TestJSONHasWhatAStatusHas(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[store.Status](), reflect.TypeFor[statusJSON]()},
		{reflect.TypeFor[store.RelayStatus](), reflect.TypeFor[relayJSON]()},
		{reflect.TypeFor[store.PartitionStatus](), reflect.TypeFor[partitionJSON]()},
	} {
		written := map[string]bool{}
		for f := range pair[1].Fields() {
			written[key(f)] = true
		}
		for f := range pair[0].Fields() {
			want := key(f)
			if f.Type == reflect.TypeFor[time.Duration]() {
				want += "_seconds"
			}
			if !written[want] {
				t.Errorf("%s: the JSON has no %s", pair[0].Name(), want)
			}
		}
	}
}

func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
