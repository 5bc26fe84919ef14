// Package why explains the state of an object: which of its conditions, events,
// owners, dependents and dependencies is the most likely cause, what shows it,
// and which command helps.
//
// Read collects facts through the API, with a bounded number of read requests;
// what the user may not read is a fact, too. Explain is a pure function of
// these facts: each rule looks at one object of the story and returns findings
// with weights. To add one, write a function of that kind, add it to the list
// in rules.go, and add a situation to testdata.
package why
