package stored

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/store"
)

// Kinds of documents, in the table of rarely changed documents.
const (
	KindDefinition = "saga definition" // its body is the graph
	KindReport     = "saga report"     // of a process; its body lists the IDs of the definitions it has
)

// Document is a row of the table of documents.
type Document struct {
	Kind, ID string
	At       int64 // when it was written, in microseconds
	Body     []byte
}

// definitionID identifies a definition: saga, version, hash.
type definitionID struct {
	Saga    string
	Version int
	Hash    string
}

// SagaReport returns the documents for the report of a process: those of its definitions, then the report itself.
func SagaReport(engine, process string, definitions []store.SagaDefinition) ([]Document, error) {
	var out []Document
	var ids []definitionID
	for _, d := range definitions {
		id := definitionID{d.Saga, d.Version, d.Hash}
		text, err := json.Marshal(id)
		if err != nil {
			return nil, fmt.Errorf("definition %s: %w", d.Saga, err)
		}
		ids = append(ids, id)
		out = append(out, Document{Kind: KindDefinition, ID: string(text), Body: Bytes(d.Graph)})
	}
	body, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("report of process %s: %w", process, err)
	}
	id, err := json.Marshal(store.SagaProcess{Engine: engine, Process: process})
	if err != nil {
		return nil, fmt.Errorf("report of process %s: %w", process, err)
	}
	return append(out, Document{Kind: KindReport, ID: string(id), Body: body}), nil
}

// ReadSagaDefinitions returns the definitions among the documents that a statement selects: kind, ID, time and body.
func ReadSagaDefinitions(ctx context.Context, q Query, now int64, text string, args ...any) ([]store.SagaDefinition, error) {
	var documents []Document
	err := q.Each(ctx, text, args, func(rows *sql.Rows) error {
		var d Document
		err := rows.Scan(&d.Kind, &d.ID, &d.At, &d.Body)
		documents = append(documents, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return SagaDefinitions(documents, now)
}

// SagaDefinitions returns the definitions among documents, with the processes that reported them, at a time in microseconds.
func SagaDefinitions(documents []Document, now int64) (out []store.SagaDefinition, err error) {
	has := make(map[definitionID][]store.SagaProcess)
	for _, d := range documents {
		if d.Kind != KindReport {
			continue
		}
		var by store.SagaProcess
		var ids []definitionID
		if err := cmp.Or(json.Unmarshal([]byte(d.ID), &by), json.Unmarshal(d.Body, &ids)); err != nil {
			return nil, fmt.Errorf("the stored report %s: %w", d.ID, err)
		}
		by.Seen = Duration(now - d.At)
		for _, id := range ids {
			has[id] = append(has[id], by)
		}
	}
	for _, d := range documents {
		if d.Kind != KindDefinition {
			continue
		}
		var id definitionID
		if err := json.Unmarshal([]byte(d.ID), &id); err != nil {
			return nil, fmt.Errorf("the stored definition %s: %w", d.ID, err)
		}
		processes := has[id]
		slices.SortFunc(processes, func(a, b store.SagaProcess) int {
			return cmp.Or(strings.Compare(a.Engine, b.Engine), strings.Compare(a.Process, b.Process))
		})
		out = append(out, store.SagaDefinition{
			Saga: id.Saga, Version: id.Version, Hash: id.Hash, Graph: d.Body, FirstSeen: Time(d.At), Processes: processes,
		})
	}
	slices.SortFunc(out, CompareDefinitions)
	return out, nil
}

// CompareDefinitions orders definitions by Saga, Version and Hash.
func CompareDefinitions(a, b store.SagaDefinition) int {
	return cmp.Or(strings.Compare(a.Saga, b.Saga), cmp.Compare(a.Version, b.Version), strings.Compare(a.Hash, b.Hash))
}

// CompareDocuments orders documents by Kind and ID.
func CompareDocuments(a, b Document) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
}
