// Package sagatest tests sagas without a database, in virtual time.
//
// [New] runs a definition with participants that answer as a test says:
//
//	s := sagatest.New(t, Fulfilment)
//	sagatest.Answer(s, ReserveStock, Reservation{ID: "r-1"})
//	s.Refuse(ChargeCard, "limit")
//	got := s.Run(Order{ID: "42"})
//	s.Want(got, saga.Compensated)
//	s.WantCommands("stock.reserve", "card.charge", "stock.reserve.undo")
//
// [Explore] shows that a definition keeps its promises whatever happens: it visits every state that messages, duplicates,
// refusals, failures and timeouts can lead to, and prints the shortest history that breaks a rule:
//
//	sagatest.Explore(t, Fulfilment, Order{ID: "42"})
//
// [ExploreContract] does so for a contract, its tracker and services that keep records of what they did.
package sagatest
