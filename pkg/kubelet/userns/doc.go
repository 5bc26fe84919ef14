// Package userns allocates a range of the node's user and group ids to each pod with
// a user namespace (hostUsers: false). Ranges do not overlap. They are recorded in the
// pods' directories, in upstream's file and format, so that they survive a restart of
// the kubelet.
package userns
