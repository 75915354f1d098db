package stored

import (
	"context"
	"iter"

	"github.com/postrider/postrider/store"
)

// documentPage is how many documents are read at a time.
const documentPage = 100

// ListDocuments yields the documents of a kind, newest first, each page as committed when it is read.
func ListDocuments(ctx context.Context, records store.Records, op store.Operation, kind string) iter.Seq2[store.Document, error] {
	return documents(func(before string) (page []store.Document, err error) {
		err = records.View(ctx, op, func(r store.Reader) (err error) {
			page, err = r.Documents(ctx, kind, before, documentPage)
			return err
		})
		return page, err
	})
}

// AllDocuments is ListDocuments in a transaction.
func AllDocuments(ctx context.Context, r store.DocumentReader, kind string) iter.Seq2[store.Document, error] {
	return documents(func(before string) ([]store.Document, error) { return r.Documents(ctx, kind, before, documentPage) })
}

func documents(read func(before string) ([]store.Document, error)) iter.Seq2[store.Document, error] {
	return func(yield func(store.Document, error) bool) {
		for before := ""; ; {
			page, err := read(before)
			if err != nil {
				yield(store.Document{}, err)
				return
			}
			for _, d := range page {
				if !yield(d, nil) {
					return
				}
				before = d.ID
			}
			if len(page) < documentPage {
				return
			}
		}
	}
}
