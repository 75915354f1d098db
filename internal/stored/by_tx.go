package stored

import (
	"database/sql"
	"runtime"
	"sync"
	"weak"
)

// ByTx keeps a value for each transaction, until the program no longer references the transaction. The zero value is ready to use.
type ByTx[V any] struct {
	mu     sync.Mutex
	values map[weak.Pointer[sql.Tx]]V
}

// Update replaces the value of a transaction. known says whether there was one.
func (b *ByTx[V]) Update(tx *sql.Tx, f func(old V, known bool) V) {
	p := weak.Make(tx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.values == nil {
		b.values = make(map[weak.Pointer[sql.Tx]]V)
	}
	old, known := b.values[p]
	b.values[p] = f(old, known)
	if !known {
		runtime.AddCleanup(tx, b.remove, p)
	}
}

func (b *ByTx[V]) remove(p weak.Pointer[sql.Tx]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.values, p)
}

// Of returns the value of a transaction.
func (b *ByTx[V]) Of(tx *sql.Tx) (value V, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	value, known = b.values[weak.Make(tx)]
	return value, known
}
