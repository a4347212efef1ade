-- In SQL, because DataFrame.withWatermark wants to know the columns of a table that does not exist yet.
CREATE TEMPORARY VIEW watermarked_messages AS
SELECT * FROM STREAM decoded_messages WATERMARK read_at DELAY OF INTERVAL ${spark.mqshards.duplicates.window};
