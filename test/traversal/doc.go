// Package traversal tries to escape from the directories that pods and clients are confined
// to, with generated paths over a tree full of hostile links, against the kubelet's volumes,
// logs and pages.
package traversal
