// Package framework chooses a node for a pod: filter plugins reject nodes, score plugins rank
// the others. All nodes are evaluated. Pods of one shape (pods of which the plugins read the
// same values) share cached answers, and only nodes that have changed are evaluated again.
package framework
