// Package flowcontrol is API Priority and Fairness: it limits how many requests the
// server works on concurrently.
//
// FlowSchemas assign requests to priority levels, which share the seats of the
// server. A request that finds no free seat waits in one of its level's queues, and
// the queues take turns, so that a busy user does not delay the others. Every 10
// seconds levels lend each other the seats that they do not use.
//
// A seat is held while the server works: it is taken once the body was read, and
// freed when the response begins. What clients can prolong is limited by places
// instead: a user may have a number of requests in flight per level, including those
// whose body or response is in transfer.
//
// https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
package flowcontrol
