// Package leaderelection lets one of several replicas be active at a time. They compete
// for a coordination/v1 Lease, as upstream's components do, and can compete with those.
package leaderelection
