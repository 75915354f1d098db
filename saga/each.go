package saga

import (
	"fmt"

	"github.com/postrider/postrider/saga/internal/machine"
)

// Each does the same for each item of a list, such as each line of an order: its steps take the data of their item, of type I. Items are
// worked on at the same time, and the saga continues when all are finished. If a step of one is refused or unknown, all are undone,
// as in a Parallel. It contains no pivot and no Await. A step of an item has the item's ID in its path: "lines[SKU-1]/reserve".
//
// To continue without the items that are refused, give their step a Refused function; if an item has several steps, make them a saga of
// their own and start it by a Child.
type Each[D, I any] struct {
	Name string
	// OnlyIf skips the step if it returns false. Default: the step always runs.
	OnlyIf func(d D) bool
	// Items lists the items when the step begins: at most Config.MaxItems, which count for Config.MaxState. They stay the same
	// whatever becomes of the data. Required.
	Items func(d D) []I
	// ID identifies an item: 1 to 64 bytes of printable text without brackets. If two items have the same ID, the step is refused. Required.
	ID func(item I) string
	// Steps run one after another for each item. Required.
	Steps []Step[I]
	// Join takes all items, as their steps have left them and in the order of Items, into the data. Default: they are not needed.
	Join func(d *D, items []I)
	// Window is how many items are worked on, or undone, at a time. Default: 16.
	Window int
}

func (e Each[D, I]) build(*D) *machine.Step {
	s := &machine.Step{
		Kind: machine.Each, Name: e.Name, OnlyIf: condition(e.OnlyIf), Each: built(e.Steps), Window: e.Window,
		Codec: machine.ItemCodec{Decode: decode[I], Encode: encode},
	}
	if e.Items != nil && e.ID != nil {
		s.List = func(data any) ([]machine.Item, error) {
			items := e.Items(*data.(*D))
			listed := make([]machine.Item, len(items))
			for i := range items {
				text, err := encode(&items[i])
				if err != nil {
					return nil, fmt.Errorf("encode item %d: %w", i+1, err)
				}
				listed[i] = machine.Item{ID: e.ID(items[i]), Data: text}
			}
			return listed, nil
		}
	}
	if e.Join != nil {
		s.Join = func(data any, items []any) {
			joined := make([]I, len(items))
			for i, item := range items {
				joined[i] = *item.(*I)
			}
			e.Join(data.(*D), joined)
		}
	}
	return s
}
