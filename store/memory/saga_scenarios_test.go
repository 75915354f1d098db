package memory_test

import (
	"testing"

	"github.com/postrider/postrider/saga/scenariotest"
	"github.com/postrider/postrider/store/memory"
)

// TestSaga runs the acceptance scenarios of package saga.
func TestSaga(t *testing.T) {
	t.Parallel()
	scenariotest.Run(t, sagaKit)
}

func TestSagaModel(t *testing.T) {
	t.Parallel()
	scenariotest.Model(t, sagaKit)
}

func TestSagaTorture(t *testing.T) {
	t.Parallel()
	scenariotest.Torture(t, sagaKit)
}

var sagaKit = scenariotest.Kit[*memory.Tx]{
	Open:     func(testing.TB) scenariotest.Store[*memory.Tx] { return memory.New(memory.Config{}) },
	Bubble:   true,
	InMemory: true,
}
