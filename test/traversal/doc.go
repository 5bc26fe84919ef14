// Package traversal tries to get out of the directories that pods and clients
// are kept in: generated paths over a tree full of hostile links, against the
// kubelet's volumes, logs and pages.
package traversal
