// Package store holds the interfaces that stores implement, and the types that stores and the rest of Postrider exchange.
// Users open a store (store/postgres, store/mysql, store/sqlite or store/memory), pass it to outbox.New, relay.New, inbox.New,
// deadletter.New or held.New, and need from this package only the types of results. To write a store, implement what is here;
// store/storetest and inbox/inboxtest test it.
//
// # What a store implements
//
//	Outbox[Tx]       writes messages in the caller's transaction
//	Relay            leases partitions (Leases), reads the log and records outcomes (Log), and applies decisions (Records)
//	TxSettler[Tx]    commits a handler's transaction together with a settlement
//	Inbox[Tx]        records what was consumed (Ledger), and parks what cannot be processed now (Parker)
//	Effects          records side effects outside the database
//	Records          dead letters, redrives, held keys, parked messages and operators' decisions
//	StatusReader     the state of relays and consumers
//	Administrator    changes of an outbox as a whole
//	SagaStore[Tx]    instances of sagas and their transitions; SagaReader and SagaMaintenance belong to it
//	SagaRecords[Tx]  what participants of sagas did
//
// Listener, Maintainer, TxLimiter, TxPipeliner and BeginBatcher are optional. A store around another one is a Wrapper.
//
// # Rules for all methods
//
// Durations are measured on the database's clock and never compared with another clock. Leases, log and settlements follow
// one rule: no process acts on memory that is newer than the database it writes to (see Leases and Log).
package store
