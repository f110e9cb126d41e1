package logfile

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger returns the daemon's logger: one JSON object a line with the keys
// time (RFC 3339, UTC), level, msg and the fields given. Control characters are
// escaped by JSON. Nothing is sampled; w bounds the volume.
func NewLogger(w zapcore.WriteSyncer, level zapcore.LevelEnabler) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey:       "time",
		LevelKey:      "level",
		NameKey:       "logger",
		MessageKey:    "msg",
		StacktraceKey: "stack",
		EncodeLevel:   zapcore.LowercaseLevelEncoder,
		EncodeTime: func(t time.Time, out zapcore.PrimitiveArrayEncoder) {
			out.AppendString(t.UTC().Format(timeFormat))
		},
		EncodeDuration: zapcore.StringDurationEncoder,
	})
	return zap.New(zapcore.NewCore(encoder, w, level), zap.ErrorOutput(w))
}
