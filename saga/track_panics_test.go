package saga_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

// TestContractThatPanics: a function of a contract that panics, or ends its goroutine, leaves an instance of this contract that is stuck and
// says why. Another contract tracks the same events, and none is a dead letter.
func TestContractThatPanics(t *testing.T) {
	t.Parallel()
	var ids sync.Map // of events whose Instance panics
	for name, fault := range faults(&ids) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { contractPanics(t, name, fault, &ids) })
		})
	}
}

func instanceOf(name string) func(m *postrider.Message) string {
	return func(m *postrider.Message) string { return name + " " + m.Headers["postrider-saga"] }
}

// faults are what gives a contract a function that panics. They return why an instance is stuck then.
func faults(ids *sync.Map) map[string]func(c *saga.Contract) (why string) {
	return map[string]func(c *saga.Contract) (why string){
		"Instance": func(c *saga.Contract) string {
			c.Instance = func(m *postrider.Message) string { ids.Store(m.ID, "Instance"); panic("a fault") }
			return "Instance: panic: a fault"
		},
		"Instance ends its goroutine": func(c *saga.Contract) string {
			c.Instance = func(m *postrider.Message) string {
				ids.Store(m.ID, "Instance ends its goroutine")
				runtime.Goexit()
				return ""
			}
			return "Instance: the handler ended its goroutine"
		},
		"Items": func(c *saga.Contract) string {
			c.Deadline = 0
			c.Events[1].Items = saga.ItemsOf(OrderCreated, func(Order) []string { panic("a fault") })
			return "panic: a fault"
		},
		"Item": func(c *saga.Contract) string {
			c.Deadline = 0
			c.Events[1].Item = saga.ItemFuncs{saga.ItemOf(StockReserved, func(Order) string { panic("a fault") })}
			return "panic: a fault"
		},
	}
}

func contractPanics(t *testing.T, name string, fault func(c *saga.Contract) string, ids *sync.Map) {
	fine := saga.Contract{Name: "fine", Version: 1, Deadline: time.Hour, Instance: instanceOf("fine"), Events: []saga.Event{
		{On: OrderCreated, Service: "orders", Start: true, NoUndo: true},
		{
			On: StockReserved, Service: "stock", After: saga.Defs{OrderCreated}, End: true, NoUndo: true,
			Items: saga.ItemsOf(OrderCreated, func(Order) []string { return []string{"a"} }),
			Item:  saga.ItemFuncs{saga.ItemOf(StockReserved, func(Order) string { return "a" })},
		},
	}}
	faulty := fine
	faulty.Name, faulty.Instance, faulty.Events = "faulty", instanceOf("faulty"), slices.Clone(fine.Events)
	why := fault(&faulty)
	engine, publish := trackedAll(t, []saga.Contract{faulty, fine}, func(*relay.Relay, *saga.Participant[*memory.Tx]) error { return nil })
	publish("p-1", OrderCreated)
	publish("p-1", StockReserved)
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	if got, err := engine.Get(t.Context(), "fine p-1"); err != nil || got.Status != saga.Completed {
		t.Errorf("the instance of the contract without a fault is %s (%v), want it completed", got.Status, err)
	}
	stuck := []string{"faulty p-1"}
	if strings.HasPrefix(name, "Instance") {
		stuck = nil
		ids.Range(func(id, of any) bool {
			if of == name {
				stuck = append(stuck, id.(string))
			}
			return true
		})
		if len(stuck) != 2 {
			t.Errorf("Instance was called for %d events, want 2", len(stuck))
		}
	}
	for _, id := range stuck {
		if got, err := engine.Get(t.Context(), id); err != nil || got.Status != saga.Stuck || !strings.Contains(reasons(t, engine, id), why) {
			t.Errorf("instance %s of the other contract is %s (%v), want it stuck because of %q", id, got.Status, err, why)
		}
	}
}

// reasons are the texts of the history of an instance.
func reasons(t *testing.T, engine *saga.Engine[*memory.Tx], id string) (text string) {
	for transition, err := range engine.History(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range transition.Entries {
			text += e.Text + "\n"
		}
	}
	return text
}
