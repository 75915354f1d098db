// Package scenariotest runs sagas on a real store, with relays and participants, and checks what happened: the acceptance
// scenarios of package saga. Each store's tests call Run; "go test -run 'TestSaga/A13'" runs one scenario.
package scenariotest
