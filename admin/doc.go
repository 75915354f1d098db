// Package admin is what people do and see when they operate an outbox: the service under the web UI, the HTTP API and the
// command line. It decides who may do what, hides payloads, and records every action.
//
//	service := admin.New(store, admin.Config{Name: "shop"})
//	overview, err := service.Overview(ctx, admin.Principal{Subject: "anna", Role: admin.Viewer})
//
// What an action does to dead letters, held keys and messages is decided by packages deadletter, held and inspect.
//
// # Roles
//
// A viewer sees states, dead letters and messages without payloads, an operator also the parts of payloads that rules show, and
// redrives, discards, edits and decides. An admin also sees what is hidden, sees everybody's actions, and grants access.
//
// # Audit
//
// The entry of an action is written in the transaction of the action: either both exist or neither does. Entries of actions that
// were refused or failed are written by themselves. Actions that only read hidden values are recorded before the values are
// returned.
//
// # Redaction
//
// A payload is hidden, for every role, unless a [Rule] shows it. Causes can quote payloads: they are normalized, as by
// [store.NormalizeCause], unless a rule shows them too.
//
// # Reviews
//
// An action on many dead letters begins with a [Review], which fixes them: those that match a filter, are open, and have numbers up
// to the highest one at that time. Carrying it out names its digest. It handles those that are still open, and never more.
package admin
