package oncelake;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import io.delta.storage.HadoopFileSystemLogStore;
import java.io.BufferedReader;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStreamReader;
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
 *
 * <p>It is also the fence of ranges. A range and a day in it have different app ids, so Delta does not see that one overwrites the
 * other, and a driver that was suspended may commit long after another one took its lease. So the commit of a range names the version
 * that it must directly follow ({@code must_follow}), and no other commit of a work lands behind a range that it did not know of
 * ({@code as_of} is the newest version that it knew). Delta retries a commit as the next version; here that retry is refused.
 */
public class S3ConditionalLogStore extends HadoopFileSystemLogStore {
  private static final String CREATE_IF_ABSENT = "fs.option.create.conditional.overwrite";
  private static final String COMMIT_INFO = "{\"commitInfo\"";
  private static final ObjectMapper JSON = new ObjectMapper();

  public S3ConditionalLogStore(Configuration conf) {
    super(conf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
    FileSystem fs = path.getFileSystem(conf);
    if (overwrite) {
      publish(fs.create(path, true), actions, fs, null);
      return;
    }
    try {
      FSDataOutputStreamBuilder<?, ?> file = fs.createFile(path).overwrite(false).recursive();
      file.must(CREATE_IF_ABSENT, true); // a file system that does not know the option refuses
      publish((FSDataOutputStream) file.build(), actions, fs, path);
    } catch (IOException error) {
      throw existsAlready(error, fs, path) ? (IOException) new FileAlreadyExistsException(path.toString()).initCause(error) : error;
    }
  }

  /** Write all actions and then close, which publishes the object. After any failure before that, nothing is published. */
  private static void publish(FSDataOutputStream out, Iterator<String> actions, FileSystem fs, Path commit) throws IOException {
    try {
      while (actions.hasNext()) {
        String action = actions.next();
        if (commit != null && action.startsWith(COMMIT_INFO)) {
          refuseIfFenced(fs, commit, action);
        }
        out.write((action + "\n").getBytes(StandardCharsets.UTF_8));
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

  /** Refuse a commit that may not become this version, by what its commitInfo says of the versions it knew. */
  private static void refuseIfFenced(FileSystem fs, Path path, String commitInfo) throws IOException {
    JsonNode facts = facts(commitInfo);
    if (facts.path("must_follow").isIntegralNumber() && versionOf(path) != facts.get("must_follow").asLong() + 1) {
      throw fenced(path, "it must directly follow version " + facts.get("must_follow"));
    }
    if (facts.path("as_of").isIntegralNumber()) {
      for (long version = facts.get("as_of").asLong() + 1; version < versionOf(path); version++) {
        if (isRange(fs, new Path(path.getParent(), String.format("%020d.json", version)))) {
          throw fenced(path, "version " + version + " is a range that it did not know of");
        }
      }
    }
  }

  private static IOException fenced(Path path, String reason) {
    return new IOException("[ONCELAKE_FENCED] " + path.getName() + ": " + reason);
  }

  private static boolean isRange(FileSystem fs, Path commit) throws IOException {
    try (BufferedReader lines = new BufferedReader(new InputStreamReader(fs.open(commit), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        if (line.startsWith(COMMIT_INFO)) {
          return facts(line).has("must_follow");
        }
      }
    } catch (FileNotFoundException gone) {
      return true; // removed with the old log: it may have been one
    }
    return false;
  }

  /** The facts of a work in a commitInfo; a missing node if another program wrote it. */
  private static JsonNode facts(String commitInfo) throws IOException {
    String text = JSON.readTree(commitInfo).at("/commitInfo/userMetadata").asText();
    return text.startsWith("{\"oncelake\"") ? JSON.readTree(text).path("oncelake") : MissingNode.getInstance();
  }

  /** The version of a commit by its name; -1, which follows nothing, if the name is another. */
  private static long versionOf(Path commit) {
    return commit.getName().matches("\\d{20}\\.json") ? Long.parseLong(commit.getName().substring(0, 20)) : -1;
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
