package memory_test

import (
	"testing"

	"github.com/postrider/postrider/store/storetest"
)

func TestSagas(t *testing.T) {
	t.Parallel()
	storetest.Sagas(t, features, harness)
}
