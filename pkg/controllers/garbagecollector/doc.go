// Package garbagecollector deletes objects whose owners are gone, and carries
// out the three ways to delete an owner: in the background (the owner first,
// then what it owned), in the foreground (the owner stays until what it owned
// is gone) and orphaning (what it owned stays and forgets it).
//
// A graph of all objects and their ownerReferences, kept by the informers, says
// where to look. That an owner exists is believed from the graph; that it is
// gone is only believed from the API. Every delete names the uid and the
// resourceVersion that the decision was made on.
package garbagecollector
