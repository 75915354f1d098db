package stored

import (
	"reflect"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
)

// TestStatusRows: numbers are added up over partitions before they are limited, and everything comes in order.
func TestStatusRows(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000, 0).UTC()
	cursor := func(relay string, partition int, undelivered int64, age time.Duration) CursorRow {
		return CursorRow{
			Relay: relay, Kind: store.KindRelay, PartitionStatus: store.PartitionStatus{Partition: partition, Age: age},
			Undelivered: undelivered, Delivered: 3, Failed: 1,
		}
	}
	process := func(relay, id string, started time.Time) ProcessRow {
		return ProcessRow{Relay: relay, OwnerStatus: store.OwnerStatus{Owner: store.Owner{ID: id}, Started: started}}
	}
	got := StatusRows{
		Now: at, Partitions: 2, Topics: map[string][]string{"a": {"x"}},
		Relays:    []RelayRow{{Relay: "b"}, {Relay: "a", Parked: store.CountLimit + 1, Dead: 2, OldestDead: time.Hour}},
		Cursors:   []CursorRow{cursor("a", 1, 6_000, time.Second), cursor("b", 0, 0, 0), cursor("a", 0, 6_000, time.Minute)},
		Processes: []ProcessRow{process("a", "new", at), process("a", "old", at.Add(-time.Hour))},
	}.Status()
	most := store.Count{N: store.CountLimit, AtLeast: true}
	part := func(partition int, backlog int64, age time.Duration) store.PartitionStatus {
		return store.PartitionStatus{Partition: partition, Backlog: store.Count{N: backlog}, Age: age}
	}
	want := store.Status{Now: at, Partitions: 2, Relays: []store.RelayStatus{
		{
			Name: "a", Kind: store.KindRelay, Topics: []string{"x"}, Backlog: most, Age: time.Minute, Parked: most,
			Dead: store.Count{N: 2}, OldestDead: time.Hour, OldestUndelivered: time.Minute, Delivered: 6, Failed: 2,
			Partitions: []store.PartitionStatus{part(0, 6_000, time.Minute), part(1, 6_000, time.Second)},
			Owners:     []store.OwnerStatus{process("a", "old", at.Add(-time.Hour)).OwnerStatus, process("a", "new", at).OwnerStatus},
		},
		{Name: "b", Kind: store.KindRelay, Delivered: 3, Failed: 1, Partitions: []store.PartitionStatus{part(0, 0, 0)}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("status:\n%+v, want\n%+v", got, want)
	}
}
