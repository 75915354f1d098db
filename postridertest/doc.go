// Package postridertest tests services that publish and handle messages.
//
// In a transaction of any store, check what was published:
//
//	placed := postridertest.RequirePublished(t, ctx, box, tx, OrderPlaced, postridertest.Key("order/42"))
//
// Run a handler as a relay or consumer does, attempt by attempt:
//
//	h := postridertest.NewHandler(t, OrderPlaced, ship)
//	if got := h.Handle(ctx, OrderPlacedData{OrderID: "42"}); got.Kind != postrider.Delivered { … }
//
// Show that a service is idempotent: [EachFault] runs a scenario in memory and in virtual time, from the outbox to the inbox, once
// for each fault that brokers and processes have.
//
//	postridertest.EachFault(t, func(t *testing.T, f *postridertest.Flow) { … })
//
// In tests with real servers, a [Proxy] breaks connections and loses answers.
package postridertest
