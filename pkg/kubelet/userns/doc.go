// Package userns gives each pod with a user namespace (hostUsers: false) a range
// of user and group ids of the node that no other pod has. A range is recorded
// in the pod's directory, in upstream's file and form, so that it survives the
// kubelet.
package userns
