package oncelake;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * A Delta log store for S3 on which several drivers may commit: a commit is one conditional put (If-None-Match: *), so that the
 * store itself decides who was first. Delta's own store looks whether the file is there and then writes it, and between the two
 * another driver's commit is overwritten.
 *
 * <p>An object appears when its stream is closed, as a whole. A write that fails half-way therefore aborts its stream.
 */
public class S3ConditionalLogStore extends HadoopFileSystemLogStore {
  private static final String CREATE_IF_ABSENT = "fs.option.create.conditional.overwrite";

  public S3ConditionalLogStore(Configuration conf) {
    super(conf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
    FileSystem fs = path.getFileSystem(conf);
    if (overwrite) {
      publish(fs.create(path, true), actions);
      return;
    }
    try {
      FSDataOutputStreamBuilder<?, ?> file = fs.createFile(path).overwrite(false).recursive();
      file.must(CREATE_IF_ABSENT, true); // a file system that does not know the option refuses
      publish((FSDataOutputStream) file.build(), actions);
    } catch (IOException error) {
      throw existsAlready(error, fs, path) ? (IOException) new FileAlreadyExistsException(path.toString()).initCause(error) : error;
    }
  }

  /** Write all actions and then close, which publishes the object. After any failure before that, nothing is published. */
  private static void publish(FSDataOutputStream out, Iterator<String> actions) throws IOException {
    try {
      while (actions.hasNext()) {
        out.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
      }
    } catch (Throwable error) {
      try {
        out.abort(); // not close: that would publish half a commit
      } catch (RuntimeException problem) {
        error.addSuppressed(problem);
      }
      throw error;
    }
    out.close();
  }

  /** Whether an error says that another writer created the file: 412, or 409 while both were writing and the other has won. */
  private static boolean existsAlready(IOException error, FileSystem fs, Path path) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      // By name: hadoop-aws is on the class path of a session, not on that of every build.
      String kind = cause.getClass().getSimpleName();
      if (kind.equals("FileAlreadyExistsException") || kind.equals("RemoteFileChangedException")) {
        return true;
      }
      if (String.valueOf(cause.getMessage()).contains("ConditionalRequestConflict")) {
        return appears(fs, path, error);
      }
    }
    return false;
  }

  /** Wait for the file of another writer, whose request was under way when ours was refused; a second and a half at most. */
  private static boolean appears(FileSystem fs, Path path, IOException error) {
    try {
      for (long pause = 50; pause <= 800; pause *= 2) {
        if (fs.exists(path)) {
          return true;
        }
        Thread.sleep(pause);
      }
    } catch (IOException problem) {
      error.addSuppressed(problem);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
    return false;
  }

  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration conf) {
    return false;
  }
}
