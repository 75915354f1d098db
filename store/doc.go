// Package store defines what a database stores for Postrider: the types and the interfaces that store/postgres, store/mysql,
// store/sqlite and store/memory implement. store/storetest tests them against these contracts.
//
// Applications use the packages above it and pass a store to them; only a new store needs this package.
package store
