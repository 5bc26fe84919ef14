// Package leaderelection lets one of several replicas work at a time. They
// compete for a coordination/v1 Lease, as upstream's daemons do, and can
// compete with those.
package leaderelection
