// Package horizontalpodautoscaler scales the target of each HorizontalPodAutoscaler by the
// metrics that it names.
//
// Every sync period it reads the scale of the target (of any kind that has the subresource)
// and the metrics, through the API server. decide computes the replicas that the metrics
// ask for (percentage.go, calculate.go), holds them against what was recommended lately
// and against how fast the target may grow and shrink (behavior.go), and says which
// conditions and events follow. The reconciler then writes the scale and the status.
//
// What was recommended and changed lately is kept in memory only, as upstream keeps it: a
// controller that starts takes the current replicas as the first recommendation, so that
// it does not scale down before a stabilization window has passed.
package horizontalpodautoscaler
