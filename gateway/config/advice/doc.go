// Package advice says what an operator should know of a configuration without mistakes: what in
// it is probably not meant ([Warnings]), and which of its changes wait for a restart ([Waiting]).
package advice
