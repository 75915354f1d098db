package postrider

import (
	"math"
	"net/netip"
	"testing"
	"time"
)

func TestPropertiesKeepTheirValues(t *testing.T) {
	t.Parallel()
	m := &Message{}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	roundTrip(t, m, "text", "ö, \"x\"")
	roundTrip(t, m, "flag", true)
	roundTrip(t, m, "count", -3)
	roundTrip(t, m, "big", int64(math.MaxInt64))
	roundTrip(t, m, "at", at)
	roundTrip(t, m, "from", netip.MustParseAddr("192.0.2.1"))
	m.FillDefaults("test", at)
	m.Type, m.Topic = "t", "t"
	if err := m.Validate(Limits{}); err != nil {
		t.Error(err)
	}
}

func roundTrip[T comparable](t *testing.T, m *Message, name string, v T) {
	t.Helper()
	p := DefineProperty[T](name)
	if _, found, err := p.Get(m); found || err != nil {
		t.Errorf("%s: found %t, %v before it is set", name, found, err)
	}
	if err := p.Set(m, v); err != nil {
		t.Errorf("set %s: %v", name, err)
	}
	got, found, err := p.Get(m)
	if at, isTime := any(v).(time.Time); isTime {
		if !at.Equal(any(got).(time.Time)) || !found || err != nil {
			t.Errorf("%s: got %v, %t, %v", name, got, found, err)
		}
		return
	}
	if got != v || !found || err != nil {
		t.Errorf("%s: got %v, %t, %v; want %v", name, got, found, err, v)
	}
}

func TestPropertiesReportWhatTheyCannotKeep(t *testing.T) {
	t.Parallel()
	m := &Message{Headers: map[string]string{"count": "many"}}
	if _, found, err := DefineProperty[int]("count").Get(m); !found || err == nil {
		t.Errorf("found %t, %v", found, err)
	}
	if err := DefineProperty[int]("Count").Set(m, 1); err == nil {
		t.Error("a name with a capital letter was accepted")
	}
	if err := DefineProperty[[]int]("list").Set(m, nil); err == nil {
		t.Error("a list was accepted")
	}
	if _, _, err := DefineProperty[string]("").Get(m); err == nil {
		t.Error("an empty name was accepted")
	}
}

func TestRecorderCollectsAndClears(t *testing.T) {
	t.Parallel()
	var r Recorder
	Record(&r, orderPlacedV1, orderPlaced{Order: "1"})
	r.Add(&Message{Type: "by.hand"})
	msgs, err := r.Take()
	if err != nil || len(msgs) != 2 || msgs[0].Type != "order.placed" || msgs[1].Type != "by.hand" {
		t.Errorf("took %+v, %v", msgs, err)
	}
	if msgs, err := r.Take(); err != nil || len(msgs) != 0 {
		t.Errorf("took %+v, %v the second time", msgs, err)
	}
	Record(&r, Define[chan int]("cannot.be.encoded"), nil)
	r.Add(&Message{Type: "by.hand"})
	if msgs, err := r.Take(); err == nil || msgs != nil {
		t.Errorf("took %+v, %v, want the error of Record", msgs, err)
	}
}
