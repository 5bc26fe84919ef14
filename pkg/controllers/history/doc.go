// Package history keeps the revisions of pod templates as ControllerRevisions, for the
// controllers of StatefulSets and DaemonSets. The data of a revision is the patch that
// replaces the template of its owner, as upstream and kubectl write it.
package history
