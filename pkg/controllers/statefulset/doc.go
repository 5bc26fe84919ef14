// Package statefulset keeps the pods and the volume claims of StatefulSets: pods with
// stable names, created and updated one after the other (OrderedReady) or all at once
// (Parallel).
//
// decide.go says which pods to create and delete, claims.go which claims belong to a pod
// and who owns them. The revisions of the pod template are in package history.
package statefulset
