// Package resourcequota is the controller that keeps the status of ResourceQuotas: the
// limits in force, and the usage of the objects that exist.
//
// The API server charges new objects to the usage before it stores them. The controller
// gives usage back when objects are deleted or pods end, and corrects charges for
// objects that were not stored.
package resourcequota
