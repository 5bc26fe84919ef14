// Package volumes puts a pod's volumes on the node's disk and takes them away
// again: emptyDir, hostPath, configMap, secret, projected and downwardAPI.
//
// What it knows of a pod that is gone is on disk, below <root>/pods/<uid>, in
// upstream's layout: volumes/kubernetes.io~<plugin>/<volume>, and
// volume-subpaths/<volume>/<key> for bind-mounted sub-paths.
package volumes
