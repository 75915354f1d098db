package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var documentTests = []test{
	{name: "DocumentsAreKeptByKindNewestFirst", run: documentsAreKept},
	{name: "LockedDocumentIsChangedByOneAtATime", run: documentsAreLocked},
}

func (e *env) changeRecords(f func(w store.Writer) error) {
	e.t.Helper()
	e.must(e.Change(e.ctx, store.Operation{Method: "Test", Doing: "test"}, f), "change records")
}

func (e *env) viewRecords(f func(r store.Reader) error) {
	e.t.Helper()
	e.must(e.View(e.ctx, store.Operation{Method: "Test", Doing: "test"}, f), "read records")
}

func (e *env) documents(kind, before string, limit int) (ids []string) {
	e.t.Helper()
	e.viewRecords(func(r store.Reader) error {
		found, err := r.Documents(e.ctx, kind, before, limit)
		ids = nil
		for _, d := range found {
			if d.Kind != kind || d.At.IsZero() {
				e.t.Errorf("document %+v, want kind %s and a time", d, kind)
			}
			ids = append(ids, d.ID)
		}
		return err
	})
	return ids
}

func documentsAreKept(e *env) {
	var ids []string
	body := []byte("\x00 any bytes \xff")
	for range 5 {
		id := postrider.NewID()
		ids = append(ids, id)
		e.changeRecords(func(w store.Writer) error { return w.AddDocument(e.ctx, store.Document{Kind: "a", ID: id, Body: body}) })
	}
	e.changeRecords(func(w store.Writer) error {
		return w.AddDocument(e.ctx, store.Document{Kind: "b", ID: ids[0], Body: []byte("other")})
	})
	slices.Reverse(ids)
	e.wantIDs("all of a kind", e.documents("a", "", 100), ids)
	e.wantIDs("a page", e.documents("a", ids[1], 2), ids[2:4])
	e.changeRecords(func(w store.Writer) error {
		d, err := w.LockDocument(e.ctx, "a", ids[2])
		if err != nil || string(d.Body) != string(body) {
			e.t.Errorf("document %+v, %v; want the body as stored", d, err)
		}
		d.Body = nil
		return w.SaveDocument(e.ctx, store.Document{Kind: d.Kind, ID: d.ID, Body: []byte("new")})
	})
	e.changeRecords(func(w store.Writer) error { return w.RemoveDocument(e.ctx, "a", ids[0]) })
	e.viewRecords(func(r store.Reader) error {
		if d, err := r.Document(e.ctx, "a", ids[2]); err != nil || string(d.Body) != "new" {
			e.t.Errorf("saved document: %+v, %v", d, err)
		}
		if d, err := r.Document(e.ctx, "b", ids[4]); err != nil || string(d.Body) != "other" {
			e.t.Errorf("document of another kind with the same ID: %+v, %v", d, err)
		}
		if _, err := r.Document(e.ctx, "a", ids[0]); !errors.Is(err, store.ErrNoDocument) {
			e.t.Errorf("removed document: %v, want %v", err, store.ErrNoDocument)
		}
		return nil
	})
}

func documentsAreLocked(e *env) {
	id := postrider.NewID()
	e.changeRecords(func(w store.Writer) error {
		return w.AddDocument(e.ctx, store.Document{Kind: "counter", ID: id, Body: []byte("0")})
	})
	var counting sync.WaitGroup
	for range 4 {
		counting.Go(func() {
			for range 5 {
				e.changeRecords(func(w store.Writer) error {
					d, err := w.LockDocument(e.ctx, "counter", id)
					if err != nil {
						return err
					}
					n := 0
					if _, err := fmt.Sscan(string(d.Body), &n); err != nil {
						return err
					}
					d.Body = fmt.Append(nil, n+1)
					return w.SaveDocument(e.ctx, d)
				})
			}
		})
	}
	counting.Wait()
	e.viewRecords(func(r store.Reader) error {
		if d, err := r.Document(e.ctx, "counter", id); err != nil || string(d.Body) != "20" {
			e.t.Errorf("20 changes left %q, %v", d.Body, err)
		}
		return nil
	})
}
