package inboxtest

import (
	"slices"
	"sync"

	"github.com/postrider/postrider"
)

// journal records what handlers do.
type journal struct {
	mu  sync.Mutex
	ids []string
	max int // the highest attempt seen
}

func (j *journal) note(m *postrider.Message) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ids = append(j.ids, m.ID)
	j.max = max(j.max, m.Attempt)
	n := 0
	for _, id := range j.ids {
		if id == m.ID {
			n++
		}
	}
	return n
}

// highest is the highest attempt seen.
func (j *journal) highest() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.max
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.ids)
}

func (j *journal) count(id string) int {
	n := 0
	for _, noted := range j.all() {
		if noted == id {
			n++
		}
	}
	return n
}
