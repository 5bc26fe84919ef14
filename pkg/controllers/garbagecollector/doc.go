// Package garbagecollector deletes objects whose owners no longer exist, and implements the
// three ways to delete an owner: in the background (the owner first, then its dependents), in
// the foreground (the owner stays until its dependents are gone) and orphaning (the
// dependents stay without their owner reference).
//
// A graph of all objects and their owner references, filled by one monitor for each kind in
// discovery, determines what to check. The collector trusts the graph that an owner exists,
// but asks the API before it treats an owner as absent. Every delete has the UID and the
// resourceVersion that the decision was based on as preconditions.
package garbagecollector
